"""What a training adds to plain gradient descent on the loss: penalties on the weights."""
