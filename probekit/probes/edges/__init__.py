"""Edge probing (Tenney et al. 2019; Tenney, Das & Pavlick 2019): probes of spans with trained poolings and mixes."""
