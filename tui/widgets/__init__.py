"""Line-API widgets: each draws rows on a canvas and holds no truth."""
