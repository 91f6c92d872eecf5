"""The live road: a growing folder of self-play games -> batches, stage by stage."""
