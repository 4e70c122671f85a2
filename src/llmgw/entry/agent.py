"""Joins an agent's settings and ports into a running agent."""

from llmgw.agent.agent import Agent
from llmgw.agent.settings import AgentPorts, AgentSettings


def build_agent(settings: AgentSettings, ports: AgentPorts) -> Agent:
    """The agent; `run` it until it is closed. The simulator passes ports of its own.

    Raises `OSError` when the state directory cannot be written.
    """
    return Agent(settings, ports)
