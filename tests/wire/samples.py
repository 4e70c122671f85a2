"""One full message of every kind, as a person would expect to see it on the wire."""

from collections.abc import Mapping

from llmgw.core.catalog import SecretRef
from llmgw.core.claims import Claim
from llmgw.core.inventory import (
    EngineInstall,
    Fabric,
    Filesystem,
    ForeignProcess,
    Gpu,
    NodeReport,
    WeightFile,
)
from llmgw.wire import agent_v1 as agent
from llmgw.wire import watch_v1 as watch

KEY = agent.ShardKey("qwen-1a2b3c4d", 0, 1)
CLAIM = Claim((0, 1), 24_000_000_000, 16_000_000_000, 66_000_000_000, (20000, 20001))
GPUS = (
    Gpu(
        index=0,
        uuid="GPU-7d3f",
        product="NVIDIA H100 80GB HBM3",
        gpu_class="H100-80GB",
        memory_total_bytes=85_520_809_984,
        memory_used_bytes=1_048_576,
        utilisation=0.25,
        ecc_uncorrected=0,
        foreign=(ForeignProcess(812, 734_003_200, "Xorg"),),
        nvlink_peers=(1,),
    ),
    Gpu(index=1),
)
DISKS = (Filesystem("/var/lib/llmgw-weights", 2_000_000_000_000, 900_000_000_000, False),)
NODE = NodeReport(
    id="node05",
    address="10.0.0.5",
    labels={"pool": "coding"},
    agent_version="0.1.0",
    cpus=32,
    memory_total_bytes=64_000_000_000,
    memory_available_bytes=48_000_000_000,
    gpus=GPUS,
    fabrics=(Fabric("ib0", ("mlx5_0",), 200.0, None), Fabric("ib1", ("mlx5_1",), None, "no ACTIVE port")),
    filesystems=DISKS,
    weights=(WeightFile("/models/qwen.gguf", 4_000_000_000, "hf:Qwen/Qwen3-8B-GGUF"),),
    engines={"llama.cpp": EngineInstall("llama.cpp", "/usr/bin/llama-server", "b10434")},
    ports_in_use=(20003,),
)
REPORT = agent.ShardReport(
    key=KEY,
    phase="ready",
    model="qwen",
    profile="h100",
    fingerprint="9c369324073879b1",
    engine="llama.cpp",
    term=3,
    shard_count=1,
    fabric="ib0",
    address="10.0.0.5",
    port=20000,
    claim=CLAIM,
    engine_key="secret",
    pid=4711,
    start_time=123456,
    started_at=1764576000.5,
    running_s=90.25,
)
FAILED = agent.ShardReport(
    key=KEY, phase="failed", failure="out_of_memory", reason="killed: 12 GB asked", log_tail=("a", "b")
)
SPEC = agent.ShardSpec(
    key=KEY,
    model="qwen",
    profile="h100",
    fingerprint="9c369324073879b1",
    engine="llama.cpp",
    source="/models/qwen.gguf",
    shard_count=1,
    address="10.0.0.5",
    port=20000,
    claim=CLAIM,
    engine_key="secret",
    install="llama.cpp",
    context_length=32768,
    gpus_per_node=2,
    tensor_parallel=1,
    pipeline_parallel=1,
    launch_mode="native",
    fabric="ib0",
    master_address="10.0.0.5",
    master_port=20001,
    args={"n-gpu-layers": 99, "flash-attn": True, "temp": 0.5, "lora": None, "stop": ["a", 1]},
    env={"HF_HOME": "/cache", "HF_TOKEN": SecretRef(from_env="HF_TOKEN")},
    startup_timeout_s=1200.0,
    fetch_timeout_s=3600.0,
    stall_timeout_s=120.0,
)

AGENT_UP: Mapping[str, agent.Up] = {
    "register": agent.Register("instance-1", "boot-1", NODE, (REPORT, FAILED), True, "cluster-1", 7),
    "register_nothing": agent.Register("instance-1", "boot-1", NodeReport("node06", "10.0.0.6")),
    "heartbeat": agent.Heartbeat(
        64_000_000_000, 48_000_000_000, GPUS, DISKS, (20003,), stale_s={"gpus": 12.5}
    ),
    "heartbeat_empty": agent.Heartbeat(),
    "node_changed": agent.NodeChanged(NODE),
    "shard_status": agent.ShardStatus(REPORT),
    "progress": agent.Progress(KEY, 12_400_000_000, 70_000_000_000, "fetching"),
    "log_lines": agent.LogLines("17", ("line one", 'line "two"'), False, None),
    "command_refused": agent.CommandRefused(KEY, "term 2 is older than 7", 7),
}
AGENT_DOWN: Mapping[str, agent.Down] = {
    "welcome": agent.Welcome("cluster-1", 3, 5.0, 20000, 29999, "0.1.0"),
    "refused": agent.Refused("a standby", "10.0.0.2:8443"),
    "start_shard": agent.StartShard(3, SPEC),
    "stop_shard": agent.StopShard(3, KEY, 10.0, "2 running, 1 wanted"),
    "forget_shard": agent.ForgetShard(3, KEY),
    "log_request": agent.LogRequest("17", "qwen-1a2b3c4d", 0, 100, True),
    "log_cancel": agent.LogCancel("17"),
}

MODEL = watch.ModelEntry(
    name="qwen",
    mode="always",
    created=1764576000,
    owned_by="llmgw",
    description="Code",
    context_length=32768,
    capabilities=("chat", "tools"),
    aliases=("coder",),
    starting=True,
    reason="needs 24 GB, has 16 GB",
    timeouts={"first_byte": 600.0},
)
ENDPOINT = watch.EndpointEntry(
    "qwen-1a2b3c4d", "qwen", "10.0.0.5", 20000, "llama.cpp", "secret", 1.0, "node05"
)
API_KEY = watch.KeyEntry(
    public_id="AbCd1234",
    secret_sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    key_id="key-1",
    project="acme/research/bot",
    team="research",
    org="acme",
    user="ana",
    expires_at=1772352000.0,
    disabled=False,
    models=("qwen*",),
)
ALIAS = watch.AliasEntry("chat", (("qwen", 0.9), ("llama", 0.1)))
USAGE = watch.UsageRow(
    request_id="req-1",
    at=1764576001.25,
    key_id="key-1",
    model_asked="coder",
    project="acme/research/bot",
    team="research",
    org="acme",
    user="ana",
    model_answered="qwen",
    replica="qwen-1a2b3c4d",
    endpoint="/v1/chat/completions",
    stream=True,
    prompt_tokens=12,
    completion_tokens=34,
    cached_tokens=8,
    estimated=False,
    status=200,
    error=None,
    latency_s=1.5,
    first_byte_s=0.2,
    attempts=2,
)
WATCH_UP: Mapping[str, watch.Up] = {
    "hello": watch.Hello("r-1", "0.1.0", "hash", 900, 55, 12.5, "0.0.0.0:8080", 1),
    "applied": watch.Applied(42),
    "use": watch.Use(
        {
            "qwen-1a2b3c4d": watch.EndpointUse(2, 0.5, None),
            "qwen-ffffffff": watch.EndpointUse(0, None, "timed out"),
        },
        {"llama": 3.5},
        60.0,
    ),
    "usage_batch": watch.UsageBatch(5, (USAGE,), 2),
}
WATCH_DOWN: Mapping[str, watch.Down] = {
    "snapshot": watch.Snapshot(41, "cluster-1", 3, (MODEL,), (ALIAS,), (ENDPOINT,), (API_KEY,), ("node07",)),
    "update": watch.Update(
        42,
        (MODEL,),
        (ALIAS,),
        (ENDPOINT,),
        (API_KEY,),
        ("gone-model",),
        ("gone-alias",),
        ("gone-endpoint",),
        ("gone-key",),
        ("node07",),
    ),
    "update_fallbacks": watch.Update(
        43,
        (
            watch.ModelEntry(
                "qwen",
                "always",
                fallbacks=(
                    watch.FallbackEntry("big", ("unavailable", "context")),
                    watch.FallbackEntry("small"),
                ),
            ),
        ),
    ),
    "usage_stored": watch.UsageStored(5),
    "drain": watch.Drain("replaced by pid 901", 30.0),
    "refused": watch.Refused("a standby", "10.0.0.2:8443"),
}
