"""The folder of a flow: plans, results, and how the driver and the tasks exchange them."""
