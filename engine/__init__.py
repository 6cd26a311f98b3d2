"""Everything between text and samples. No sockets, no HTTP; never imports the server."""
