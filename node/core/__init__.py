"""Pure machines that decide: values and `now` in, effects out."""
