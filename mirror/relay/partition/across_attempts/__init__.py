"""What the attempts of one copy share: its parts that outlive an attempt, and what they decide. No I/O."""
