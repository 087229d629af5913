"""Who may send how much and when, where a link or a route has a limit. All but `links` is pure."""
