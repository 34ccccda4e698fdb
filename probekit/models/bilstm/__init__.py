"""The bidirectional LSTM of Bowman et al. (2018), trained from nothing."""
