"""Streams of shuffled, augmented samples from files or an object store to the workers of all trials.

et.data.write(({"x": x, "y": y} for x, y in samples), "s3://bucket/digits")

def train(config):
    ...
    stream = et.data.Stream("s3://bucket/digits", augment=flip)
    for batch in elastic.batches(stream, batch_size=256):
        elastic.backward(lambda batch: F.cross_entropy(model(batch["x"]), batch["y"]), batch)

The part of Ultron's Data Manager, without its pods: the order of the samples is a function of the seed and the epoch,
so every worker knows for itself what it has to read next, and needs nobody to hand it out. What the trials on a machine
have downloaded they share.

Why not one of those that exist: mosaicml-streaming takes rank and number of workers from the environment that
torch.distributed was launched with, once; wants batches that the number of workers divides; and refuses a second job
that reads by way of the same local folder, which is what the trials of a run are. Ray Data does not remember where in
an epoch it was, and gives rows in an order of their own unless told to keep it.
"""

from elastune.data.stream import Stream
from elastune.data.write import write

__all__ = ["Stream", "write"]
