"""Loop primitives every shell uses: tasks, mailbox, every, backoff, closing."""
