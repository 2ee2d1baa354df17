"""Land cover: predict a forest type from terrain in unseen areas."""
