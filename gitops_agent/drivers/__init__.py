"""(charter to be written)"""
