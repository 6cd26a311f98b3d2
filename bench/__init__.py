"""Measurements that print numbers and draw plots."""
