"""HTTP/1.1 of the data plane: an own server and a pooled client over the llhttp parser."""
