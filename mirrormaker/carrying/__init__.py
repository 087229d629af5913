"""Consumer groups carried from one side of a route to the other, through its ledger."""
