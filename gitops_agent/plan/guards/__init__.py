"""The guards, one small file each: ``(Plan, Situation) -> Verdict``.

What belongs here: rules over a finished plan. What does not: comparing or classifying (the plan is given), and
anything that adds or changes an action. ``plan/guard.py`` lists and evaluates them. A plan may be
without any action: then a guard reports what should be reported anyway.
"""
