"""One training step of a Hugging Face model, or its generation, as an oometer job describes it: what the reference tools share."""
