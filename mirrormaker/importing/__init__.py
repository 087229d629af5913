"""What other mirrors were told, as a topology."""
