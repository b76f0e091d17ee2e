"""The return of a cluster that clients have left by a failover: what it is, what only it has, and the way back."""
