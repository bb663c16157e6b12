"""The report's figures as Plotly specifications: plain values, colours named after the page's variables."""
