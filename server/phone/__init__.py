"""Calls from telephones over their bridges: Twilio and its kin, Asterisk's two doors."""
