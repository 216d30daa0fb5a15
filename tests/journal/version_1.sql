-- A journal as version 1 wrote it. Never edited: it is what old state directories hold.
CREATE TABLE schema_version (
    version INTEGER NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE meta (
    name VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE commits (
    sha VARCHAR NOT NULL,
    tree VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    committed_at DOUBLE NOT NULL,
    position INTEGER NOT NULL,
    phase VARCHAR NOT NULL,
    seen_at DOUBLE NOT NULL,
    started_at DOUBLE,
    finished_at DOUBLE,
    "plan" VARCHAR NOT NULL,
    summary VARCHAR NOT NULL,
    changed INTEGER NOT NULL,
    agents INTEGER NOT NULL,
    rolls_back_to VARCHAR,
    rolled_back_by VARCHAR,
    findings VARCHAR NOT NULL,
    PRIMARY KEY (sha)
);
CREATE INDEX ix_commits_position ON commits (position);
CREATE TABLE bases (
    "key" VARCHAR NOT NULL,
    driver VARCHAR NOT NULL,
    fields BLOB NOT NULL,
    commit_sha VARCHAR NOT NULL,
    applied_at DOUBLE NOT NULL,
    deletion VARCHAR NOT NULL,
    idempotent BOOLEAN NOT NULL,
    retained BOOLEAN NOT NULL,
    facts BLOB NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE attempts (
    "key" VARCHAR NOT NULL,
    failures INTEGER NOT NULL,
    next_at DOUBLE NOT NULL,
    error VARCHAR NOT NULL,
    permanent BOOLEAN NOT NULL,
    PRIMARY KEY ("key")
);
CREATE TABLE intents (
    seq INTEGER NOT NULL,
    id VARCHAR NOT NULL,
    at DOUBLE NOT NULL,
    commit_sha VARCHAR NOT NULL,
    "plan" VARCHAR NOT NULL,
    actor VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    driver VARCHAR NOT NULL,
    verb VARCHAR NOT NULL,
    cls VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    message VARCHAR NOT NULL,
    confidence VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    patch VARCHAR NOT NULL,
    evidence VARCHAR NOT NULL,
    base BLOB,
    desired BLOB,
    live BLOB,
    facts BLOB,
    deletion VARCHAR NOT NULL,
    idempotent BOOLEAN NOT NULL,
    result VARCHAR,
    outcome VARCHAR,
    finished_at DOUBLE,
    duration DOUBLE,
    outcome_facts BLOB,
    permanent BOOLEAN,
    PRIMARY KEY (seq),
    UNIQUE (id)
);
CREATE INDEX ix_intents_result ON intents (result);
CREATE INDEX ix_intents_agent ON intents (agent, seq);
CREATE TABLE decisions (
    "plan" VARCHAR NOT NULL,
    commit_sha VARCHAR NOT NULL,
    ordinal INTEGER NOT NULL,
    at DOUBLE NOT NULL,
    agent VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    driver VARCHAR NOT NULL,
    verb VARCHAR NOT NULL,
    cls VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    message VARCHAR NOT NULL,
    confidence VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    patch VARCHAR NOT NULL,
    evidence VARCHAR NOT NULL,
    PRIMARY KEY ("plan", commit_sha, ordinal)
);
CREATE TABLE observations (
    seq INTEGER NOT NULL,
    agent VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    driver VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    fields BLOB,
    state VARCHAR NOT NULL,
    observed_at DOUBLE NOT NULL,
    reason VARCHAR,
    message VARCHAR NOT NULL,
    live VARCHAR NOT NULL,
    facts BLOB NOT NULL,
    evidence VARCHAR NOT NULL,
    started_at DOUBLE,
    heartbeats VARCHAR NOT NULL,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (seq)
);
CREATE INDEX ix_observations_key ON observations ("key", seq);
CREATE INDEX ix_observations_agent ON observations (agent, seq);
CREATE TABLE statuses (
    agent VARCHAR NOT NULL,
    ready BOOLEAN NOT NULL,
    lifecycle VARCHAR NOT NULL,
    conditions VARCHAR NOT NULL,
    observed_commit VARCHAR NOT NULL,
    resources VARCHAR NOT NULL,
    origin VARCHAR NOT NULL,
    next_try_at DOUBLE,
    PRIMARY KEY (agent)
);

INSERT INTO schema_version VALUES (1);
INSERT INTO meta VALUES ('enforced', 'abc');
INSERT INTO bases VALUES ('acme/bot:runtime/main', 'memory', CAST('{"replicas":1}' AS BLOB), 'abc', 10.0, 'Delete', 1, 0,
    CAST('{"pid":7}' AS BLOB));
INSERT INTO attempts VALUES ('acme/bot:runtime/main', 2, 30.0, 'exit 1', 0);
INSERT INTO intents VALUES (1, 'i1', 20.0, 'abc', 'digest', 'once', 'acme/bot', 'acme/bot:runtime/main', 'memory', 'create',
    'Change', 'Created', 'new in Git', 'high', 'repair', '[]', '[["kernel","absent",19.0]]', NULL,
    CAST('{"replicas":1}' AS BLOB), NULL, NULL, 'Delete', 1, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO decisions VALUES ('digest', 'abc', 0, 19.0, 'acme/bot', 'acme/bot:runtime/main', 'memory', 'create', 'Change',
    'Created', 'new in Git', 'high', 'repair', '[{"op":"add","path":"","value":{"replicas":1}}]', '[]');
