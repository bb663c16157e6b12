"""`autotune run` against what people use instead, on one GPU, in one sitting.

    python -m benchmarks.rivals --output h200.jsonl --seconds 560      runs what is not there yet
    python -m benchmarks.rivals --output h200.jsonl --report           writes benchmarks/results/rivals.md

Cases: `qwen2.5-0.5b` full fine-tuning and `qwen2.5-1.5b` LoRA of rank 16, 24 GB, sequences of 1024 tokens, a
global batch of 32. Contenders, each with the same time limit (`--limit`, 150 s a case):

| name | what runs |
| --- | --- |
| `autotune` | `autotune run` on the shipped space, its quality knobs fixed to what the others train |
| `autotune-same-kernels` | the same without Liger's kernels, which no other uses (only by `--only`) |
| `deepspeed-autotuner` | `deepspeed --autotuning tune` in fast mode over all ZeRO stages |
| `hf-auto-find` | transformers' `Trainer` with `auto_find_batch_size`, starting at the global batch |
| `usual-recipe` | ZeRO-0, every layer checkpointed, the micro batch doubled while it fits |
| `table` | the best row of an exhaustive table in benchmarks/search/tables; nothing is run |

Given to all alike: the model built from the card's configuration with random weights, random tokens at full
sequence length, bf16 compute with fp32 masters of what is trained, SDPA, AdamW with fp32 state, gradient
clipping at 1, and an allocator capped at the budget less the share of device memory outside it, with
expandable segments on. PyTorch has those off by default; without them less fits, so that is a gift to the
rivals. Also a gift: DeepSpeed's tuner asks how large the card is, and is told the budget.

What cannot be alike: the `Trainer` keeps fp32 weights and autocasts (16 bytes a trained parameter) where
DeepSpeed keeps bf16 weights and an fp32 master; its accumulation stays 1 whatever batch it finds. DeepSpeed's
tuner probes with an accumulation of 1 and picks among those figures too. On one GPU it reckons with 16 bytes
for each parameter, trained or not, in every stage (deepspeed 0.19.8): for LoRA on a model of 1.5 billion it
tries nothing under 24 GiB. The recipe runs in our own pre-warmed process; that process' start is counted to
it.

What is once per machine is charged to nobody: compiling DeepSpeed's operators, measuring the share outside
the allocator and the machine's rates.

Each winner is measured several times more (`--rounds`), all of them in turns and in the same way: a trial of
ours at its micro batch, stage, checkpointed share and buckets, with the accumulation that comes nearest to
the global batch. So a contender's own figure and the comparable one stand side by side.

Each contender runs in a process group of its own that is ended with all its children at the limit. What it
had found by then counts, and its row says that it was cut. Rows are appended as they come and what the output
holds is not run again: delete a line to repeat it. No network is used. DeepSpeed's tuner needs `tabulate`
(`pip install deepspeed[autotuning]`), and starts its experiments by the command `deepspeed`, which is put on
its PATH; it ends each with `pdsh ... pkill`, and where there is no pdsh that thread dies with a traceback
after the experiment has ended, which does no harm.
"""
