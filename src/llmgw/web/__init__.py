"""Pages for people, rendered on the server: status, dashboard, chat."""
