"""Joins an agent's settings and ports into a running agent."""

from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.ports import LoopOwner


def build_agent(settings: AgentSettings, ports: AgentPorts) -> LoopOwner:
    """The agent; `run` it until it is closed. The simulator passes ports of its own."""
    raise NotImplementedError
