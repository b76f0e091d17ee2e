"""Values that the planner, the tasks and the results exchange. No I/O."""
