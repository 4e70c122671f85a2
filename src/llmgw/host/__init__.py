"""The machine adapter: hardware discovery, processes, disks, downloads."""
