"""How a notification is sent: chat robots, and what Apprise can send."""
