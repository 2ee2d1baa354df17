"""Kernel SVM by decomposition: SMO (Platt 1998) and IRWLS (Pérez-Cruz et al. 2000) on an active set of rows."""
