-- The board of jobs. Durable: what is committed here survives a power cut.

create table jobs (
    id integer primary key autoincrement,
    -- Grows with every change of any job, so that the worker reads only what is new.
    revision integer not null,
    state text not null,
    -- How many of the jobs that this one comes after have not succeeded yet; one more while it
    -- waits for its retry.
    unmet integer not null default 0,
    arrival integer not null,
    rank integer not null,
    -- Its keys, and with a line feed at both ends all keys that it counts on.
    keys text not null,
    path text not null,
    weight integer not null,
    priority integer not null,
    task text,
    -- Words are separated by zero bytes: an argument need not be text.
    command blob not null,
    directory blob not null,
    umask integer not null,
    environment integer not null references environments (id),
    -- What was asked for besides, as JSON: watchdogs, notifications.
    options text not null,
    dedupe text,
    retries integer not null,
    -- How often it was queued again by itself since somebody last asked for it.
    retried integer not null default 0,
    expire_seconds real,
    submitted_at real not null,
    -- When its time to start is over: for people, and by the clock of arrivals, which does not jump.
    expire_at real,
    due integer,
    started_at real,
    ended_at real,
    exit_code integer,
    end_reason text,
    attempts integer not null default 0,
    -- Why it shall be ended, if somebody wants that while it runs.
    cancel_reason text,
    -- Whether anybody has looked at its end.
    is_read integer not null default 0,
    -- Until when it waits for its retry, by the clock of arrivals.
    delayed_until integer
);

create index jobs_by_revision on jobs (revision);
create index jobs_in_line on jobs (rank, unmet, path) where state = 'queued';
create index jobs_by_state on jobs (state, id);
create index jobs_to_expire on jobs (due) where due is not null and state in ('held', 'queued');
create index jobs_delayed on jobs (delayed_until) where delayed_until is not null;
create unique index jobs_by_dedupe on jobs (dedupe)
    where dedupe is not null and state in ('held', 'queued', 'running');

create table attempts (
    job integer not null references jobs (id),
    number integer not null,
    -- The supervisor: the name of its lock in live/, and its pid, for people.
    holder text not null,
    pid integer not null,
    lease text not null,
    started_at real not null,
    ended_at real,
    state text not null,
    exit_code integer,
    end_reason text,
    output_bytes integer not null default 0,
    -- What ended it, as JSON, if that was a watchdog.
    ended_by text,
    primary key (job, number)
) without rowid;

create index attempts_under_way on attempts (job) where ended_at is null;

create table dependencies (
    after integer not null,
    job integer not null references jobs (id),
    primary key (after, job)
) without rowid;

-- Many jobs of one shell have the same environment; it is kept once.
create table environments (
    id integer primary key,
    digest blob not null unique,
    variables blob not null
);

-- What people are to be told, until it was sent; and what could not be sent, with the reason.
create table news (
    id integer primary key autoincrement,
    job integer,
    event text not null,
    at real not null,
    details text not null,
    problem text
);

create table facts (name text primary key, value) without rowid;
