"""torch.compile with cudagraph trees: checkpoints and restores of their pool, by the real caller."""

import torch
from case import check_heap, install, run_group, settle

install()


def test_cudagraph_trees():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)).cuda()

    def forward(x, twice):
        y = net(x)
        torch._dynamo.graph_break()
        return y * 2 if twice else y - 1

    compiled = torch.compile(forward, mode="reduce-overhead")
    kept = []
    for step in range(14):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(32, 128, device="cuda")
        twice = step % 3 == 0
        out = compiled(x, twice)
        expected = forward(x, twice)
        assert torch.allclose(out, expected, atol=1e-4), step
        kept.append(out.clone())
        loss = out.square().mean()
        loss.backward()
        net.zero_grad()
    assert all(bool(k.isfinite().all()) for k in kept)
    check_heap()


def test_inference_paths():
    """Two paths from one root: the second time round, the pool goes back to the root's state."""

    @torch.compile(mode="reduce-overhead")
    def root(x):
        return x * 2 + 1

    @torch.compile(mode="reduce-overhead")
    def left(y):
        return (y + 3).relu()

    @torch.compile(mode="reduce-overhead")
    def right(y):
        return torch.cat([y, y]) * 5

    with torch.no_grad():
        for step in range(10):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.full((1 << 18,), float(step), device="cuda")
            y = root(x)
            z = (left if step % 2 else right)(y)
            wanted = (2 * step + 1 + 3) if step % 2 else (2 * step + 1) * 5
            assert float(z.min()) == float(z.max()) == wanted, step
    check_heap()


if __name__ == "__main__":
    run_group()
