-- Every fire is a new version of the schedule's row, with a new entry in each of its indexes.
-- works with code from: 1

-- With room for one more of each, a burst does not split the pages of the key. It counts for pages made from now on.
alter index pulse.schedules_pkey set (fillfactor = 50);
