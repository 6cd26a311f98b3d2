"""Calls from browsers over WebRTC (extra `webrtc`)."""
