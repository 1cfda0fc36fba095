"""`lucerne run --print`: the job as a scheduler's own file, which starts an agent on each machine.

Nothing is scheduled here. A Slurm script draws the secret of its job when it begins; a JobSet takes
it from a Kubernetes secret, as a manifest is no place for one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from typing import Any

from lucerne._src.distributed.meeting.secret import TOKEN_VARIABLE
from lucerne._src.distributed.run.options import machines, ranks_here

PORT = 29400
_OWN = ("nnodes", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone", "node_rank",
        "master_addr", "master_port", "print", "image", "module", "no_python", "program",
        "arguments", "run")  # fmt: skip
"""Options that the file decides, or that stand elsewhere in the command."""


def job_name(options: argparse.Namespace) -> str:
    """A name that Slurm and Kubernetes both take."""
    given = options.rdzv_id if options.rdzv_id != "none" else os.path.basename(options.program)
    plain = re.sub(r"\.py$", "", given).lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40] or "job"


def _agent(options: argparse.Namespace, defaults: argparse.Namespace) -> list[str]:
    """The options of each machine's agent that are not the defaults, with the program."""
    found = []
    for name, value in sorted(vars(options).items()):
        if name in _OWN or value == getattr(defaults, name, None):
            continue
        found += ["--" + name.replace("_", "-"), str(value)]
    if options.no_python:
        found.append("--no-python")
    how = ["-m"] if options.module else []
    return [*found, *how, options.program, *options.arguments]


def slurm(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """A script for `sbatch`. A job that Slurm starts again goes on as the program does: from its
    last checkpoint."""
    least, most = machines(options.nnodes)
    ranks = ranks_here(options.nproc_per_node)
    nodes = str(most) if least == most else f"{least}-{most}"
    agent = shlex.join(_agent(options, defaults))
    meet = "--standalone"
    if most > 1:
        meet = (
            '--nnodes "$SLURM_JOB_NUM_NODES" --rdzv-backend c10d '
            '--rdzv-endpoint "$first:$((20000 + SLURM_JOB_ID % 20000))" '
            '--rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
        )
    return f"""#!/bin/bash
#SBATCH --job-name={job_name(options)}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={ranks}
#SBATCH --requeue
#SBATCH --open-mode=append
# One agent on each machine, which starts {ranks} ranks there and watches them.
set -eu
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export {TOKEN_VARIABLE}=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
export SRUN_CPUS_PER_TASK={ranks}
echo "job $SLURM_JOB_ID begins on $first, start ${{SLURM_RESTART_COUNT:-0}}"
exec srun --kill-on-bad-exit=1 python -m lucerne run {meet} \\
    {agent}
"""


def jobset(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """A manifest for `kubectl apply -f`, in JSON."""
    _, most = machines(options.nnodes)
    if not options.image:
        raise ValueError("--print jobset needs --image NAME: the container that has the program")
    name = job_name(options)
    meet = ["--standalone"]
    if most > 1:
        first = f"{name}-ranks-0-0.{name}:{PORT}"
        meet = ["--nnodes", options.nnodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", first,
                "--rdzv-id", name]  # fmt: skip
    secret = {"secretKeyRef": {"name": f"{name}-token", "key": "token"}}
    container: dict[str, Any] = {
        "name": "agent",
        "image": options.image,
        "command": ["python", "-m", "lucerne", "run", *meet, *_agent(options, defaults)],
        "env": [{"name": TOKEN_VARIABLE, "valueFrom": secret}],
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": {"cpu": str(ranks_here(options.nproc_per_node))}},
    }
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "parallelism": most, "completions": most, "completionMode": "Indexed", "backoffLimit": 0,
        "template": pods,
    }  # fmt: skip
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True},
        "replicatedJobs": [{"name": "ranks", "replicas": 1, "template": {"spec": job}}],
    }
    if options.max_restarts:
        spec["failurePolicy"] = {"maxRestarts": options.max_restarts}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": spec,
    }  # fmt: skip
    return json.dumps(made, indent=2) + "\n"


def printed(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """The file that `--print` asks for; what it decides itself may not be given."""
    for name in ("node_rank", "master_addr", "master_port", "rdzv_endpoint"):
        if getattr(options, name) != getattr(defaults, name):
            raise ValueError(
                f"--{name.replace('_', '-')} does not go with --print {options.print}: the file "
                "says where machines meet"
            )
    if options.image and options.print != "jobset":
        raise ValueError("--image goes with --print jobset only")
    return {"slurm": slurm, "jobset": jobset}[options.print](options, defaults)
