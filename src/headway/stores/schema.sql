-- The state of one home. True only now: safe to delete when nothing runs.
-- Few, small tables on small pages: every page that a transaction changes costs time.

-- What this file is: the inode it was made with, to tell it from a copy.
create table facts (name text primary key, value) without rowid;

-- The terms in force: lines of limits, and keys that a person paused.
create table lines (
    pattern text primary key,
    slots integer,
    source text not null,
    requests_per_minute integer
) without rowid;
create table paused (key text primary key) without rowid;

-- Each key that was asked for: the weight of leases (used) and reservations on it,
-- how many tickets are parked at it, and how long it is usually held. What stands in the way
-- besides room is its gate: 1 paused, 2 with a budget, 4 cooling. Of the budget so much is
-- spent, and so much promised to tickets that have passed the key and wait further on.
create table keys (
    key text primary key,
    cap integer not null,
    gate integer not null default 0,
    used integer not null default 0,
    reserved integer not null default 0,
    waiting integer not null default 0,
    hold_seconds real,
    budget integer not null default 4611686018427387904,
    spent integer not null default 0,
    promised integer not null default 0
) without rowid;
create index gated on keys (key) where gate > 1;

-- Keys that are left alone, by the boot clock; and the ticket that tries one afterwards.
create table cooldowns (
    key text primary key,
    since real not null,
    until real not null,
    reason text not null,
    over integer not null,
    probe text
) without rowid;

-- The requests that count on budgets: how many were admitted in which millisecond of the boot clock.
create table admitted (
    key text not null,
    at integer not null,
    count integer not null,
    primary key (key, at)
) without rowid;

-- A row per lease, never a bare counter: one shared count cannot tell whose slot a
-- crash left behind. An id begins with its holder's, so a dead holder is one range.
create table leases (
    id text primary key,
    keys text not null,
    weight integer not null,
    task text,
    priority integer not null,
    -- The leases whose slots it may borrow, the nearest first, with blanks between.
    parent text,
    -- What it was asked for inside of, a word a line: leases of its very caller, ~ and a lease of
    -- whoever started that, and ! if it gives up by itself.
    within text not null,
    arrival integer not null,
    since real not null,
    token integer not null,
    -- Whether anyone counts on this lease: has it on loan, or named it as parent.
    lent integer not null default 0,
    has_children integer not null default 0
) without rowid;

create table waiting (
    id text primary key,
    keys text not null,
    weight integer not null,
    task text,
    priority integer not null,
    parent text,
    within text not null,
    arrival integer not null,
    since real not null,
    rank integer not null,
    at text not null,
    reserved text
) without rowid;
create index line on waiting (at, rank, id);
create index children on waiting (rank, id) where parent is not null;
create index insiders on waiting (rank, id) where within >= '0' and within < '~';
create index reserving on waiting (id) where reserved is not null;

create table loans (
    lender text not null,
    key text not null,
    borrower text not null,
    primary key (lender, key)
) without rowid;
create index borrowed on loans (borrower);

-- Ends that the ticket's owner has not read yet.
create table verdicts (id text primary key, kind text not null, detail text not null)
    without rowid;

-- Live holders that have to say what they hold before this new file may grant anything.
create table awaited (holder text primary key) without rowid;
