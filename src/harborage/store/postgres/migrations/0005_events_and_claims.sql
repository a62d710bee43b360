-- How events get their numbers, and runs their workers.

-- Number and keep the events of the accepted commits, of which there are so many; for each commit its first sequence
-- and place. Only to be called under the lock for it.
create function harborage_publish(
  commits jsonb, nums bigint[], blobs bytea[], accepted integer[], events integer, at_time bigint
) returns table (nth integer, first bigint, place bigint) language plpgsql as $$
declare
  base bigint := nextval('harborage_sequence');
begin
  perform nextval('harborage_sequence') from generate_series(2, events);
  return query
  with published as materialized (
    select
      kept.nth::integer as commit, nums[(kept.body ->> 'who')::integer] as session, event.body as event,
      row_number() over (order by kept.nth, event.nth) as number,
      row_number() over (partition by nums[(kept.body ->> 'who')::integer] order by kept.nth, event.nth) as within
    from jsonb_array_elements(commits) with ordinality as kept (body, nth)
    cross join jsonb_array_elements(kept.body -> 'events') with ordinality as event (body, nth)
    where kept.nth = any(accepted)
  ),
  counted as (
    update harborage_sessions as session set
      events = session.events + more.events,
      seen_at = case when session.closed_at is null then greatest(session.seen_at, at_time) else session.seen_at end
    from (select published.session, count(*) as events from published group by published.session) as more
    where session.num = more.session and session.num = any(nums)
    returning session.num, session.events - more.events as before
  ),
  numbered as materialized (
    select
      published.commit, published.session, published.event, base + (published.number - 1) * 4096 as sequence,
      counted.before + published.within as place
    from published join counted on counted.num = published.session
  ),
  kept as (
    insert into harborage_events (sequence, session, place, run, type, at, crc, data)
    select
      numbered.sequence, numbered.session, numbered.place, numbered.event ->> 1, numbered.event ->> 0,
      coalesce((numbered.event ->> 2)::bigint, at_time), (numbered.event ->> 3)::bigint,
      blobs[(numbered.event ->> 4)::integer]
    from numbered order by numbered.sequence
  )
  select numbered.commit, min(numbered.sequence), min(numbered.place) from numbered group by numbered.commit;
end
$$;

-- Take runs that are ready: `claimed` are their numbers, highest priority first, then oldest. Only a worker that is
-- there takes any (`worker`), and it leaves, or is buried, only behind a claim of its own that is under way: what it takes then is
-- freed with the rest.
--
-- It waits for nobody. What somebody else is changing just now is left, and `left` says so: whoever changes it may leave
-- it as ready as it was, and then tells nobody when it can be had. `blocked` says whether any was blocked for having been
-- claimed too often.
create function harborage_claim(
  by_writer text, as_batch bigint, at_time bigint, for_worker text, of_agents text[], at_most integer, max_attempts integer
) returns jsonb language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  known jsonb := harborage_known(by_writer, as_batch);
  claimed jsonb := '[]';
  is_blocked boolean := false;
  is_left boolean := false;
  is_worker boolean;
begin
  if known is not null then
    return known;
  end if;
  perform from harborage_workers where name = for_worker for key share;
  is_worker := found;
  if is_worker then
    -- Those of other agents are left to fall due for their own workers, who ask when that will be.
    with due as materialized (
      select num from harborage_runs
      where wake_at is not null and wake_at <= at_time and owner is null and not woken
        and (of_agents is null or agent = '' or agent = any(of_agents))
      order by wake_at limit 1000
      for no key update skip locked
    )
    update harborage_runs as run set woken = true from due where run.num = due.num;
    with ready as materialized (
      select num, attempts from harborage_runs
      where owner is null and woken and blocked is null and status < 3 and (of_agents is null or agent = '' or agent = any(of_agents))
      order by priority desc, num limit at_most
      for no key update skip locked
    ),
    stuck as (
      update harborage_runs as run set blocked = 'claimed ' || run.attempts || ' times without progress'
      from ready where run.num = ready.num and ready.attempts >= max_attempts
      returning run.num
    ),
    taken as (
      update harborage_runs as run set
        owner = for_worker, fence = run.fence + 1, attempts = run.attempts + 1, woken = false, wake_at = null,
        status = greatest(run.status, 1)
      from ready where run.num = ready.num and ready.attempts < max_attempts
      returning run.num, run.priority
    )
    select coalesce(jsonb_agg(num order by priority desc, num), '[]'), exists (select from stuck)
    into claimed, is_blocked from taken;
    is_left := exists (
      select from harborage_runs
      where owner is null and woken and blocked is null and status < 3 and (of_agents is null or agent = '' or agent = any(of_agents))
    ) or exists (
      select from harborage_runs
      where wake_at is not null and wake_at <= at_time and owner is null and not woken
        and (of_agents is null or agent = '' or agent = any(of_agents))
    );
  end if;
  return harborage_keep(
    by_writer, as_batch,
    jsonb_build_object('worker', is_worker, 'claimed', claimed, 'blocked', is_blocked, 'left', is_left)
  );
end
$$;
