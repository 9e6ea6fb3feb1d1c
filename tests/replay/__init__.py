"""Public request traces turned into actions, and driven through a backend."""
