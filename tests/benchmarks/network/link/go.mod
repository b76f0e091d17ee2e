module link

go 1.22
