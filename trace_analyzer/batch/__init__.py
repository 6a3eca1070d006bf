"""Archives: every run in them analysed, each in a process of its own, and one index over all.

`driver.run_batch` is the entry: it lists the archive (`storage`), splits it by names into units
(`units`), hands units as tasks to an executor (`executors`), and writes what comes back into
`index.db` (`index`) and the index page (`pages`). A task (`isolate`) runs where the executor runs
it, and starts one process a run (`child`) with limits on time and memory. Only the driver writes
the index.
"""
