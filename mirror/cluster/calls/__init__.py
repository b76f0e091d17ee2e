"""API calls whose keys are routed to brokers, and retried until a deadline. No I/O."""
