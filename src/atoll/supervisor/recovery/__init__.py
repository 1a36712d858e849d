"""What a new supervisor does with what an earlier one left."""
