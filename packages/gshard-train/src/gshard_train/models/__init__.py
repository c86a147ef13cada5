"""Models: the Transformer encoder-decoder with mixture-of-experts layers."""
