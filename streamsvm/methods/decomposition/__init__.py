"""SMO (Platt 1998) and IRWLS (Perez-Cruz 2000) on active sets."""
