"""Training on several devices, and what is learnt is the same on any number of them.

def train(config):
    model, dataset = Net(config), ...
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    elastic = et.torch.Elastic(model, optimizer)
    data = elastic.batches(dataset, batch_size=256)
    for epoch in range(data.epoch, 50):
        for batch in data:
            optimizer.zero_grad()
            elastic.backward(lambda x, y: F.cross_entropy(model(x), y), batch)
            optimizer.step()
        et.report(elastic.mean(evaluate, test))
"""

from elastune.errors import ElastuneError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ElastuneError('et.torch needs PyTorch, which is not installed: pip install "elastune[torch]"') from error

from elastune.worker.torch.batches import Batch, Batches
from elastune.worker.torch.elastic import Elastic

__all__ = ["Batch", "Batches", "Elastic"]
