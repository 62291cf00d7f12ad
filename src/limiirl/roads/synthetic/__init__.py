"""Synthetic city with drivers of known styles, simulated GPS recordings, and a demo of the whole pipeline."""

from limiirl.roads.synthetic.city import City
from limiirl.roads.synthetic.demo import DemoResult, run_demo
from limiirl.roads.synthetic.gps import Recording, simulate_gps, simulate_recording

__all__ = ["City", "DemoResult", "Recording", "run_demo", "simulate_gps", "simulate_recording"]
