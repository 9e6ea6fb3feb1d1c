"""What a run says to people and to programs: the failure screen, the rule table, JSON."""
