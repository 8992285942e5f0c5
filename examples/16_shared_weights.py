"""Two processes that share weights: one loads and publishes them, the other maps them and goes on when the first is killed.

On a GPU with PyTorch the weights are those of a module, and both processes hold them once; elsewhere they are bytes on a
simulated device. Run it as `python 16_shared_weights.py`, with memsaver installed or its python/ in PYTHONPATH.
"""

import os
import signal
import subprocess
import sys
import tempfile

import memsaver

try:
    import torch

    import memsaver.torch
except ImportError:
    torch = None
ON_GPU = torch is not None and memsaver.gpu_available()


def join(name, folder):
    machine = {"device": "host", "host_machine": os.path.basename(folder), "host_capacity": 64 << 20}
    share = memsaver.Share(name=name, folder=folder, **({"device": 0} if ON_GPU else machine))
    return share, memsaver.Saver(share=share)


def module():
    return torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 16)).requires_grad_(False)


def publish(folder):
    share, saver = join("publisher", folder)
    if ON_GPU:
        with memsaver.torch.region(saver, "weights"):
            weights = module().cuda().state_dict()
    else:
        weights = {f"layer.{i}": saver.buffer(1 << 20, tag="weights") for i in range(4)}
        for i, layer in enumerate(weights.values()):
            layer.memory()[:] = bytes([i]) * layer.bytes  # reads a file, say
    print(share.publish("model", saver, "weights", weights, version="1"), flush=True)
    signal.pause()  # serves, until it is killed


def read(folder, publisher):
    share, saver = join("reader", folder)
    model = share.attach("model", saver, hash=int(publisher.stdout.readline()))
    print(*share.members(), sep="\n")
    publisher.kill()
    publisher.wait()
    model.verify()
    saver.pause(model.tag)  # like any tag
    saver.resume(model.tag)
    if ON_GPU:
        with torch.device("meta"):
            net = module()
        net.load_state_dict(memsaver.torch.tensors(model, net.state_dict()), assign=True)
        print(f"the publisher is gone; {model.tag} computes {net(torch.ones(1, 1024, device='cuda')).sum():.3f}")
    else:
        print(f"the publisher is gone; layer.3 of {model.tag} begins with {model['layer.3'].memory()[0]}")
    model.drop()
    saver.close()


def main():
    if len(sys.argv) == 2:
        publish(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="memsaver-") as folder:
        command = [sys.executable, __file__, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
            try:
                read(folder, publisher)
            finally:
                publisher.kill()


main()
