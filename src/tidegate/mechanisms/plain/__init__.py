"""The plain ones, hard to beat: Uniform, Sample, and Blocks, which restarts another mechanism every w steps."""
