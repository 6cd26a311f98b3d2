"""Tests of the measurements that are programs of their own."""
